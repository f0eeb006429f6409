package keptdocs_test

import (
	"os"
	"strings"
	"testing"
)

// TestWhere: a table is restricted by axes and labels that the study has.
func TestWhere(t *testing.T) {
	for _, where := range []string{`{bit = "4"}`, `{bits = "8"}`} {
		out, err := prepare(t).Render(t.Context(), []byte(strings.Replace(table, `{bits = "4"}`, where, 1)))
		if err == nil {
			t.Errorf("%s: no error, and the document is\n%s", where, out)
		}
	}
}

// TestWhereWidens: both what a table has from the study file and what the comment says restrict it.
func TestWhereWidens(t *testing.T) {
	r := prepare(t)
	write := strings.Replace(studyFile, "baseline = {method = \"STE\"}", "where = {bits = \"4\"}", 1)
	if err := os.WriteFile("small.toml", []byte(write), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := r.Render(t.Context(), []byte(strings.Replace(table, `{bits = "4"}`, `{bits = ["4", "2"]}`, 1)))
	if err == nil && strings.Contains(string(out), "| 2 |") {
		t.Errorf("the comment widens the table:\n%s", out)
	}
}
