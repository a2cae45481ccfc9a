"""What is in a memory broker: exchanges, queues, bindings, policies, and the messages in them."""
