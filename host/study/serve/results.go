package serve

import (
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/host/train/rundir"
)

// resultView is a result as it is shown: its name in filters, what it is called, and its value.
type resultView struct{ Name, Label, Value string }

// firstResults come first in a list of results, in this order. The others follow in the order in which they are found.
var firstResults = []string{"val_loss", "val_ppl", "train_loss", "error_rel", "error_norm2", "distance"}

// notResults are numbers of summaries that repeat the configuration.
var notResults = []string{"lambda", "silence", "total_steps"}

// mostRows limits the keys and results on a page. Only files that cage did not write have more.
const mostRows = 1000

// resultNames are those of the results of the runs, and how many more there are.
func resultNames(list []*rundir.Run) (names []string, more int) {
	known := map[string]bool{}
	for _, run := range list {
		for _, x := range run.Results() {
			if !known[x.Name] && !slices.Contains(notResults, x.Name) {
				known[x.Name] = true
				names = append(names, x.Name)
			}
		}
	}
	slices.SortStableFunc(names, func(a, b string) int { return place(a) - place(b) })
	shown := min(len(names), mostRows)
	return names[:shown], len(names) - shown
}

func place(name string) int {
	if i := slices.Index(firstResults, name); i >= 0 {
		return i
	}
	return len(firstResults)
}

// number is a result with six digits, or all of a whole number.
func number(r *rundir.Run, name string) string {
	x, ok := r.Result(name)
	if !ok {
		return absent
	}
	return strings.ReplaceAll(metrics.Short(x), "-", "−")
}

// quantity is number with the thousands of large whole numbers set apart.
func quantity(r *rundir.Run, name string) string {
	text := number(r, name)
	if len(text) < 5 || strings.Trim(text, "0123456789") != "" {
		return text
	}
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
