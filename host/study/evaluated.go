package study

import (
	"maps"
)

// Asked returns the evaluations that the model of a cell has been asked: for the ID of each, the hash of the files that
// its questions were made of. It is nil if the model has been asked nothing.
func (s *Study) Asked(c Cell) (map[string]string, error) {
	var list map[string]string
	for _, e := range s.evaluationsOf(c) {
		a, begun, err := readAccount(s.answers(c, e))
		if err != nil {
			return nil, err
		}
		if begun {
			if list == nil {
				list = map[string]string{}
			}
			list[e.ID()] = a.Rows
		}
	}
	return list, nil
}

// FindUnasked compares what the model of a result was asked, as returned by [Study.Asked], with what the study asks
// now. If they differ, it gives the result the state [Unevaluated] and removes from its summary the metrics of the
// evaluations that differ. Questions whose files cannot be read now are taken to be unchanged.
func (s *Study) FindUnasked(r *Result, asked map[string]string) {
	for _, e := range s.evaluationsOf(r.Cell) {
		if was, ok := asked[e.ID()]; !ok {
			r.unevaluated(e, "it was not asked "+e.ID())
		} else if now, err := e.rows(); err == nil && now != was {
			r.unevaluated(e, "the questions of "+e.ID()+" have changed")
		}
	}
}

// unevaluated takes the answers to an evaluation away.
func (r *Result) unevaluated(e *placedEvaluation, why string) {
	r.State, r.Err, r.Summary = Unevaluated, why, maps.Clone(r.Summary)
	for _, m := range e.Metrics() {
		delete(r.Summary, m.Name)
	}
}
