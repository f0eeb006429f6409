package tasks

// KeyNames lists the keys of a description.
func KeyNames() []string {
	var names []string
	for _, k := range new(Task).keys(new(any), new([]map[string]any)) {
		names = append(names, k.Name)
	}
	return names
}
