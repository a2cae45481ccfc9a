"""Pages of how it works: what waits, policies, the doctor, topology, the audit."""
