package export

import (
	"fmt"
	"strings"
)

// refusals are the reasons for which tensors cannot be stored, each with the tensors.
type refusals struct {
	reasons []string
	tensors map[string][]string
}

func (r *refusals) add(tensor string, err error) {
	reason := err.Error()
	if r.tensors == nil {
		r.tensors = map[string][]string{}
	}
	if r.tensors[reason] == nil {
		r.reasons = append(r.reasons, reason)
	}
	r.tensors[reason] = append(r.tensors[reason], tensor)
}

// err is one error about all of them, with what would work; nil where there are none.
func (r *refusals) err(works string) error {
	if len(r.reasons) == 0 {
		return nil
	}
	var text strings.Builder
	text.WriteString("these tensors cannot be stored exactly")
	for _, reason := range r.reasons {
		list := r.tensors[reason]
		fmt.Fprintf(&text, "\n  %s", list[0])
		if len(list) > 1 {
			fmt.Fprintf(&text, " and %d more", len(list)-1)
		}
		fmt.Fprintf(&text, ":\n    %s", strings.ReplaceAll(reason, "\n", "\n    "))
	}
	return fmt.Errorf("%s\n%s", text.String(), works)
}
