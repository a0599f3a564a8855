"""Corpora: a folder of recordings becomes utterances, checked and measured."""
