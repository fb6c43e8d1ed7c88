"""The leader of a team, with a tool for each member."""
