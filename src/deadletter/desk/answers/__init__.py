"""What answers share: whether they are fresh, which version they tell, that an action is done once, news."""
