package serve_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// TestManyRuns: the table shows 200 runs and a link to all of them.
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
		if rows := len(rowHead.FindAllString(body, -1)); rows != c.rows || strings.Contains(body, "show all 201") != c.more {
			t.Errorf("%q: %d rows, want %d, and a link to the rest: %t", c.query, rows, c.rows, c.more)
		}
	}
}

// TestManyNumbers: a record with more numbers than any that cage writes takes no more memory than the limit.
func TestManyNumbers(t *testing.T) {
	root := filepath.Join(t.TempDir(), "runs")
	for name, n := range map[string]int{"few": 63, "many": 64} {
		var numbers []string
		for i := range n {
			numbers = append(numbers, fmt.Sprintf(`"x%d":1`, i))
		}
		put(t, root, name, "run.toml", "seed = 1\n")
		put(t, root, name, "metrics.jsonl", fmt.Sprintf(`{"step":1,%s,"loss":2}`+"\n", strings.Join(numbers, ",")))
		h := pages(root)
		curves, wrong := answered(t, get(t, h, "/curves", "run", filepath.Join(root, name), "panel", "loss"))
		if wrong != "" || (len(curves) == 1) != (name == "few") {
			t.Errorf("%s: curves %v, %s", name, curves, wrong)
		}
	}
}

// TestLongFilter: of a filter the first 32 words count, and of many names that no run has one is looked for.
func TestLongFilter(t *testing.T) {
	h := pages(runs(t))
	body := get(t, h, "/table", "q", "quest"+strings.Repeat(" sead=1", 500)).Body.String()
	for _, want := range []string{"2 of 4 runs", "did you mean seed?"} {
		if !strings.Contains(body, want) {
			t.Errorf("the table lacks %q:\n%s", want, body)
		}
	}
	body = get(t, h, "/table", "q", strings.Repeat("quest ", 32)+"nowhere").Body.String()
	for _, want := range []string{"2 of 4 runs", "33 words and conditions: the first 32 count"} {
		if !strings.Contains(body, want) {
			t.Errorf("the table lacks %q:\n%s", want, body)
		}
	}
}

// TestManyDifferences: a page has the first 1,000 keys in which runs differ, and results, and says how many more there are.
func TestManyDifferences(t *testing.T) {
	root := filepath.Join(t.TempDir(), "runs")
	for _, name := range []string{"a", "b"} {
		var keys, results strings.Builder
		for i := range 1500 {
			fmt.Fprintf(&keys, "k%04d = %q\n", i, name)
			fmt.Fprintf(&results, `,"r%04d":1`, i)
		}
		put(t, root, name, "run.toml", keys.String())
		put(t, root, name, "summary.json", `{"completed":true`+results.String()+"}")
	}
	h, a, b := pages(root), filepath.Join(root, "a"), filepath.Join(root, "b")
	compared, one := get(t, h, "/compare", "run", a, "run", b).Body.String(), get(t, h, "/run", "run", a).Body.String()
	if !strings.Contains(compared, ">k0999<") || strings.Contains(compared, ">k1000<") || !strings.Contains(compared, ">r0999<") || strings.Contains(compared, ">r1000<") ||
		strings.Count(compared, "and 500 more") != 2 || strings.Contains(one, ">r1000<") || strings.Count(one, "and 500 more") != 1 {
		t.Errorf("what is shown:\n%.2000s", compared)
	}
}
