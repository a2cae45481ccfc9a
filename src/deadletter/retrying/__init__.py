"""What the service, the consumer library and the adapters share: one parking, one release."""
