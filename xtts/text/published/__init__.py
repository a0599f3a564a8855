"""The text front end of the published XTTS-v2: 17 languages, cleaned and split as they were when it was trained."""
