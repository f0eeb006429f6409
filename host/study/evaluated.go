package study

import "maps"

// Evaluated returns the evaluations of a cell's model that have begun: for the ID of each, the hash of the files with its
// questions. It is nil if there are none.
func (s *Study) Evaluated(c Cell) (map[string]string, error) {
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

// FindUnevaluated compares the recorded evaluations of a result, as returned by [Study.Evaluated], with those of the study
// now. If they differ, it gives the result the state [Unevaluated] and removes from its summary the metrics of the
// evaluations that differ. Questions whose files cannot be read now are taken to be unchanged.
func (s *Study) FindUnevaluated(r *Result, recorded map[string]string) {
	for _, e := range s.evaluationsOf(r.Cell) {
		if was, ok := recorded[e.ID()]; !ok {
			r.unevaluated(e, "it was not asked "+e.ID())
		} else if now, err := e.rows(); err == nil && now != was {
			r.unevaluated(e, "the questions of "+e.ID()+" have changed")
		}
	}
}

// unevaluated gives the result the state [Unevaluated], and removes the metrics of an evaluation.
func (r *Result) unevaluated(e *placedEvaluation, why string) {
	r.State, r.Err, r.Summary = Unevaluated, why, maps.Clone(r.Summary)
	for _, m := range e.Metrics() {
		delete(r.Summary, m.Name)
	}
}
