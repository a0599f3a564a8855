"""Verbs that take over weights and pass them on."""
