"""The memory broker's side of AMQP: frames, channels, consumers, publishes, refusals."""
