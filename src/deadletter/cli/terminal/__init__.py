"""What all commands share: options, exit codes, the screen, columns and numbers for people."""
