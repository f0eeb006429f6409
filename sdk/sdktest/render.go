package sdktest

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// Write prints the report for a person: a line for each check, with what failed below it,
// and the measures at the end.
func (r Report) Write(w io.Writer) error {
	var s strings.Builder
	fmt.Fprintf(&s, "%s %s", r.Kind, r.Plugin)
	if r.Version != "" {
		fmt.Fprintf(&s, " %s", r.Version)
	}
	if len(r.Settings) > 0 {
		fmt.Fprintf(&s, " with %s", settingsText(r.Settings))
	}
	fmt.Fprintf(&s, ", on %s\n\n", strings.Join(r.Machines, " and "))
	width := 0
	for _, c := range r.Checks {
		width = max(width, len(c.Name))
	}
	for _, c := range r.Checks {
		c.write(&s, width)
	}
	if len(r.Measures) > 0 {
		s.WriteString("\n")
		t := tabwriter.NewWriter(&s, 0, 0, 2, ' ', 0)
		for _, m := range r.Measures {
			fmt.Fprintf(t, "%s\t%.4g %s\n", m.Name, float64(m.Value), m.Unit)
		}
		t.Flush()
	}
	fmt.Fprintf(&s, "\n%s\n", r.summary())
	_, err := io.WriteString(w, s.String())
	return err
}

// String is what Write prints.
func (r Report) String() string {
	var s strings.Builder
	_ = r.Write(&s)
	return s.String()
}

func (r Report) summary() string {
	count := map[Status]int{}
	for _, c := range r.Checks {
		count[c.Status]++
	}
	return fmt.Sprintf("%d checks passed, %d failed, %d skipped", count[Pass], count[Fail], count[Skip])
}

func (c Check) write(s *strings.Builder, width int) {
	fmt.Fprintf(s, "%-4s  %-*s", c.Status, width, c.Name)
	if c.Status == Fail {
		fmt.Fprintf(s, "  %d of %d; asked: %s\n", c.Failed, c.Tried, c.Asks)
	} else {
		fmt.Fprintf(s, "%s\n", c.remark())
	}
	for _, f := range c.Failures {
		fmt.Fprintf(s, "      %s\n", f)
	}
	if more := c.Failed - len(c.Failures); more > 0 {
		fmt.Fprintf(s, "      and %d more\n", more)
	}
}

// remark is what follows the name of a check that did not fail.
func (c Check) remark() string {
	var parts []string
	if c.Status == Pass {
		parts = append(parts, fmt.Sprintf("%d tried", c.Tried))
	}
	if parts = append(parts, c.Notes...); len(parts) == 0 {
		return ""
	}
	return "  " + strings.Join(parts, "; ")
}

// String describes the failure, with its example, in one line.
func (f Failure) String() string {
	var parts []string
	if f.Machine != "" {
		parts = append(parts, "on "+f.Machine)
	}
	if f.Role != "" || f.Shape != nil {
		parts = append(parts, strings.TrimSpace(fmt.Sprintf("%s %v", f.Role, f.Shape)))
	}
	if len(f.Settings) > 0 {
		parts = append(parts, settingsText(f.Settings))
	}
	text := f.Message
	if len(f.Index) > 0 {
		text += fmt.Sprintf(" at %v", f.Index)
	}
	if f.Input != nil {
		text += fmt.Sprintf(", where x is %s", f.Input)
	}
	if f.Got != nil {
		text += fmt.Sprintf(": got %s", f.Got)
	}
	if f.Want != nil {
		text += fmt.Sprintf(", want %s", f.Want)
	}
	if len(parts) == 0 {
		return text
	}
	return strings.Join(parts, ", ") + ": " + text
}

// settingsText writes settings as on a command line.
func settingsText(settings map[string]any) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		parts = append(parts, fmt.Sprintf("%s=%v", name, settings[name]))
	}
	return strings.Join(parts, " ")
}
