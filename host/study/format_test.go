package study

import "testing"

// TestNumberFormat checks that a format with markup of Markdown or LaTeX is refused.
func TestNumberFormat(t *testing.T) {
	for format, want := range map[string]bool{
		"%.3f": true, "%+8.2e": true, "%.1f %%": true, "≈ %g GB/s (µ)": false, "%.2f·10³ MB/s (µ)": true,
		"%.3f\n# a": false, `%.3f\input{x}`: false, "%g [a](b)": false, "%g <b>": false, "$%g$": false,
		"`%g`": false, "%g | 1": false, "%f %f": false, "": false, "%%": false, "%g_1^2&~#{}*": false,
		"%g\u202e": false,
	} {
		if got := numberFormat.MatchString(format); got != want {
			t.Errorf("%q: %t, want %t", format, got, want)
		}
	}
}
