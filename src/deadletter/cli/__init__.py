"""The command line: options in, tables or JSON out. Commands wire the rooms together and decide nothing."""
