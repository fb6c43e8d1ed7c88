"""Leaders and members: the agents of a team."""
