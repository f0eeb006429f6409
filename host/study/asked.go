package study

import (
	"maps"
)

// Asked returns the evaluations that the model of a cell was asked: by their IDs, the hash of what their questions were made of.
// It is nil where the study asks nothing.
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

// FindUnasked gives the state [Unevaluated] to a result of which [Study.Asked] was this, if the study asks something else now, and
// removes the answers to what it does not ask any more. Questions whose files cannot be read now are taken as they were.
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
func (r *Result) unevaluated(e *asked, why string) {
	r.State, r.Err, r.Summary = Unevaluated, why, maps.Clone(r.Summary)
	for _, m := range e.Metrics() {
		delete(r.Summary, m.Name)
	}
}
