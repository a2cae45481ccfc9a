"""Pages of replays: started, watched, turned; recipes, deploys."""
