package huggingface

import (
	"fmt"
	"strings"

	"github.com/cage-qat/cage/internal/safetext"
)

// Error lists all problems of a checkpoint, sorted.
type Error struct {
	Path   string // path of the directory or file; may be empty
	Faults []string
}

// mostFaults bounds what a message lists.
const mostFaults = 100

func (e *Error) Error() string {
	list := e.Faults
	if more := len(list) - mostFaults; more > 0 {
		list = append(list[:mostFaults:mostFaults], fmt.Sprintf("and %d more", more))
	}
	lines := make([]string, len(list))
	for i, fault := range list {
		lines[i] = "\n  " + safetext.Text(fault)
	}
	what := "this checkpoint"
	if e.Path != "" {
		what = e.Path
	}
	return what + " cannot be used:" + strings.Join(lines, "")
}
