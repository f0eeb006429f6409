package study

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cage-qat/cage/internal/plaintoml"
)

// problems collects the problems of the configurations of cells. A problem of many cells is listed once.
type problems struct {
	found map[string]*problem // by text
	order []*problem
}

type problem struct {
	err   *plaintoml.Error
	cells []string
}

// add records the problems of a cell's configuration.
func (p *problems) add(err error, cell string) {
	if p.found == nil {
		p.found = map[string]*problem{}
	}
	for _, e := range problemsOf(err) {
		text := e.Error()
		if p.found[text] == nil {
			p.found[text] = &problem{err: e}
			p.order = append(p.order, p.found[text])
		}
		p.found[text].cells = append(p.found[text].cells, cell)
	}
}

// list returns the problems of a study of so many cells. A problem that not all cells have comes from a combination of
// settings, and names the first such cell.
func (p *problems) list(cells int) plaintoml.Errors {
	var errs plaintoml.Errors
	for _, one := range p.order {
		gap := " "
		if strings.Contains(one.err.Msg, "\n") {
			gap = "\n  "
		}
		switch others := len(one.cells) - 1; {
		case len(one.cells) == cells:
		case others == 0:
			one.err.Msg += gap + "(cell " + one.cells[0] + ")"
		default:
			one.err.Msg += gap + fmt.Sprintf("(cell %s and %d more)", one.cells[0], others)
		}
		errs = append(errs, one.err)
	}
	return errs
}

// problemsOf returns the problems of an error of host/train/config.
func problemsOf(err error) plaintoml.Errors {
	var all plaintoml.Errors
	if errors.As(err, &all) {
		return all
	}
	var one *plaintoml.Error
	if errors.As(err, &one) {
		return plaintoml.Errors{one}
	}
	return plaintoml.Errors{{Msg: err.Error()}}
}
