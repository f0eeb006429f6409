package export

// PlanOnly plans an export without writing it.
func PlanOnly(format string, m *Model) error {
	f, err := formatOf(format)
	if err == nil {
		_, err = f.Plan(m, Options{})
	}
	return err
}
