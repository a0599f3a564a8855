"""Side by side with what people would use instead: nothing comes in; a table with the date and the machine goes out."""
