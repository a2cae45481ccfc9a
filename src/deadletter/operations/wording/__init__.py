"""How replays and paces are said and typed: commands and pages say it alike."""
