"""Pure functions from the nouns to numbers: parameters, memory, compute, collectives, pipeline, step."""
