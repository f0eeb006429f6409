package export

import (
	"fmt"
	"strings"

	"github.com/cage-qat/cage/host/model/architecture"
)

// layout says where a foreign format keeps the parameters of a kind of models.
type layout struct {
	// names has the foreign name by that of the parameter, or of a part of it. A * stands
	// for the number of a block.
	names map[string]string
	// pairs is the order of the features that rotary positions turn.
	pairs architecture.Pairing
}

// parts lists the tensors of the foreign layout, in the order of the parameters.
func (l layout) parts(s architecture.Settings, params []architecture.Param) ([]part, error) {
	var list []part
	for _, p := range params {
		at := 0
		for _, piece := range piecesOf(p) {
			name, ok := l.find(piece.Name)
			if !ok {
				return nil, fmt.Errorf("the parameter %s has no name in the format", piece.Name)
			}
			q := part{name: name, param: p}
			for i := range piece.Rows {
				q.rows = append(q.rows, at+i)
			}
			if hasRotaryRows(piece.Name) {
				q.rows = architecture.Reorder(q.rows, headSize(s), s.RopePairs, l.pairs)
			}
			at += piece.Rows
			list = append(list, q)
		}
	}
	return list, nil
}

// piecesOf are the parts of a parameter by their whole names.
func piecesOf(p architecture.Param) []architecture.Part {
	if p.Parts == nil {
		return []architecture.Part{{Name: p.Name, Rows: p.Dims[0]}}
	}
	var list []architecture.Part
	for _, part := range p.Parts {
		list = append(list, architecture.Part{Name: p.Name + "." + part.Name, Rows: part.Rows})
	}
	return list
}

// find is the foreign name of a part.
func (l layout) find(name string) (string, bool) {
	block := ""
	if rest, ok := strings.CutPrefix(name, "layers."); ok {
		block, rest, _ = strings.Cut(rest, ".")
		name = "layers.*." + rest
	}
	foreign, ok := l.names[name]
	return strings.Replace(foreign, "*", block, 1), ok
}

// hasRotaryRows tells whether the rows of a part are features that rotary positions turn.
func hasRotaryRows(name string) bool {
	for _, suffix := range []string{".attn.qkv.q", ".attn.qkv.k", ".attn.q_norm", ".attn.k_norm"} {
		if strings.HasSuffix(name, suffix) {
			return true
		}
	}
	return false
}

// headSize is the number of features of a head.
func headSize(s architecture.Settings) int {
	s.FillIn()
	return s.HeadSize
}
