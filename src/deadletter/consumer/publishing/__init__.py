"""An application's own publishes: bodies and properties made, confirmed, told apart where it went wrong."""
