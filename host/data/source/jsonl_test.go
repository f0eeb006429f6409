package source

import (
	"strings"
	"testing"
)

// TestHintsOfJSON checks the errors of rows without text, and that another field is proposed only
// if there may be one.
func TestHintsOfJSON(t *testing.T) {
	for _, c := range []struct {
		line, want string
		field      bool
	}{
		{`{"other": "x"}`, `no field "text"`, true},
		{`{"text": 3}`, "not a string", true},
		{`{"text": null}`, "not a string", true},
		{"null", "not an object", false},
		{`{"text": "x", "loss": NaN}`,
			"not valid JSON: invalid character 'N' at start of value (byte 23)", false},
		{`[{"text": "x"}]`, `not an object with the field "text"`, false},
		{"{", "it ends in the middle", false},
		{`{"text": "x\u0000"}`, "the text has a zero byte", false},
	} {
		rows := 0
		for row, err := range ReadObjects(strings.NewReader(c.line)) {
			rows++
			row.Extract("text")
			if err != nil || row.Err == nil || !strings.Contains(row.Err.Problem, c.want) ||
				row.Err.Field != c.field {
				t.Errorf("%s: %+v, %v, want %s", c.line, row.Err, err, c.want)
			}
		}
		if rows != 1 {
			t.Errorf("%s: %d rows, want 1", c.line, rows)
		}
	}
}
