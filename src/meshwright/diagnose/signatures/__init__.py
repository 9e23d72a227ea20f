"""Texts that name a fault: tables of `Signature`, one file a subject, and the one rule that reads them all."""
