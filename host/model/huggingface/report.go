package huggingface

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/internal/safetext"
)

// Report classifies the tensors of a checkpoint. All lists are sorted.
type Report struct {
	Applied    []Applied  `json:"applied"`
	Missing    []string   `json:"missing"`    // tensors that the model needs
	Unused     []string   `json:"unused"`     // tensors that the model does not have
	Ignored    []string   `json:"ignored"`    // redundant tensors
	Mismatched []Mismatch `json:"mismatched"` // tensors of the wrong shape or type
}

// Applied is a tensor that becomes a parameter, or some rows of one.
type Applied struct {
	Tensor    string            `json:"tensor"`
	Type      safetensors.DType `json:"type"`
	Shape     []int             `json:"shape"`
	Parameter string            `json:"parameter"`
}

// Mismatch is a tensor of the wrong shape or type.
type Mismatch struct {
	Tensor string            `json:"tensor"`
	Type   safetensors.DType `json:"type"`
	Shape  []int             `json:"shape"`
	Want   []int             `json:"want"` // the expected shape
}

// headTensor is the matrix of the output head. If the head is tied, the tensor may be missing, or a
// copy of the embedding.
const headTensor = "lm_head.weight"

// ignoredSuffix ends the names of tensors in old files whose values follow from the configuration.
const ignoredSuffix = "rotary_emb.inv_freq"

// readable are the element types that convert to float32 without loss.
var readable = []safetensors.DType{safetensors.F32, safetensors.BF16, safetensors.F16}

// compare classifies the tensors that the model needs and those of the checkpoint, infos.
func compare(mappings []Mapping, infos []safetensors.Info, tied bool) Report {
	unmatched := map[string]safetensors.Info{}
	for _, info := range infos {
		unmatched[info.Name] = info
	}
	r := Report{[]Applied{}, []string{}, []string{}, []string{}, []Mismatch{}} // no null in JSON
	for _, p := range mappings {
		info, ok := unmatched[p.Tensor]
		delete(unmatched, p.Tensor)
		switch dims := slices.Concat([]int{len(p.Rows)}, p.Param.Dims[1:]); {
		case !ok:
			r.Missing = append(r.Missing, p.Tensor)
		case !fits(info, dims):
			r.Mismatched = append(r.Mismatched, Mismatch{p.Tensor, info.DType, info.Shape, dims})
		default:
			r.Applied = append(r.Applied, Applied{p.Tensor, info.DType, info.Shape, p.Param.Name})
		}
	}
	for name, info := range unmatched {
		switch embedding := mappings[0].Param.Dims; {
		case tied && name == headTensor && !fits(info, embedding):
			r.Mismatched = append(r.Mismatched, Mismatch{name, info.DType, info.Shape, embedding})
		case tied && name == headTensor, strings.HasSuffix(name, ignoredSuffix):
			r.Ignored = append(r.Ignored, name)
		default:
			r.Unused = append(r.Unused, name)
		}
	}
	slices.SortFunc(r.Applied, func(a, b Applied) int { return cmp.Compare(a.Tensor, b.Tensor) })
	slices.SortFunc(r.Mismatched, func(a, b Mismatch) int { return cmp.Compare(a.Tensor, b.Tensor) })
	for _, list := range [][]string{r.Missing, r.Unused, r.Ignored} {
		slices.Sort(list)
	}
	return r
}

func fits(info safetensors.Info, dims []int) bool {
	return slices.Contains(readable, info.DType) && slices.Equal(info.Shape, dims)
}

func (r Report) faults() (list []string) {
	for _, name := range r.Missing {
		list = append(list, fmt.Sprintf("tensor %s: missing", name))
	}
	for _, name := range r.Unused {
		list = append(list, fmt.Sprintf("tensor %s: not in the model", name))
	}
	for _, m := range r.Mismatched {
		if !slices.Equal(m.Shape, m.Want) {
			list = append(list, fmt.Sprintf("tensor %s: found shape %v, want %v", m.Tensor, m.Shape, m.Want))
		}
		if !slices.Contains(readable, m.Type) {
			list = append(list, fmt.Sprintf("tensor %s: type %s, want F32, BF16 or F16", m.Tensor, m.Type))
		}
	}
	return list
}

// Error lists all problems of a checkpoint, sorted.
type Error struct {
	Path   string // path of the directory or file; may be empty
	Faults []string
}

const maxFaults = 100

func (e *Error) Error() string {
	list := e.Faults
	if more := len(list) - maxFaults; more > 0 {
		list = append(list[:maxFaults:maxFaults], fmt.Sprintf("and %d more", more))
	}
	lines := lists.Map(list, func(fault string) string { return "\n  " + safetext.Text(fault) })
	return cmp.Or(e.Path, "this checkpoint") + " cannot be used:" + strings.Join(lines, "") +
		"\n(docs/guide/fine-tuning.md lists what is read)"
}
