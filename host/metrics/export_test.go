package metrics

// Parse is Read for the content of a file.
func Parse(data []byte) ([]Record, error) { return parse[Record](data) }
