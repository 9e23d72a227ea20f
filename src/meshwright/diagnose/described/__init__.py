"""What a person wrote down about a job, in words: a note, an issue's title. It only ever makes a cause possible."""
