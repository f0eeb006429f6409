package serve_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// TestManyRuns checks that the table shows 200 runs and a link to all of them.
func TestManyRuns(t *testing.T) {
	root := filepath.Join(t.TempDir(), "runs")
	for i := range 201 {
		put(t, root, fmt.Sprintf("run-%03d", i), "run.toml", fmt.Sprintf("seed = %d\n", i))
	}
	h := pages(root)
	for _, c := range []struct {
		query []string
		rows  int
		more  bool
	}{
		{nil, 200, true},
		{[]string{"all", "1"}, 201, false},
		{[]string{"q", "seed<200"}, 200, false},
	} {
		body := get(t, h, "/table", c.query...).Body.String()
		if rows := len(rowHead.FindAllString(body, -1)); rows != c.rows ||
			strings.Contains(body, "show all 201") != c.more {
			t.Errorf("%q: %d rows, want %d, and a link to the rest: %t", c.query, rows, c.rows, c.more)
		}
	}
}

// TestManyNumbers checks that metrics beyond the limit are dropped, so that memory is bounded.
func TestManyNumbers(t *testing.T) {
	root := filepath.Join(t.TempDir(), "runs")
	for name, n := range map[string]int{"few": 63, "many": 64} {
		var numbers []string
		for i := range n {
			numbers = append(numbers, fmt.Sprintf(`"a%d":1`, i))
		}
		put(t, root, name, "run.toml", "seed = 1\n")
		put(t, root, name, "metrics.jsonl",
			fmt.Sprintf(`{"step":1,%s,"loss":2}`+"\n", strings.Join(numbers, ",")))
		h := pages(root)
		curves, wrong := answered(t, get(t, h, "/curves", "run", filepath.Join(root, name), "panel",
			"loss"))
		if wrong != "" || (len(curves) == 1) != (name == "few") {
			t.Errorf("%s: curves %v, %s", name, curves, wrong)
		}
	}
}
