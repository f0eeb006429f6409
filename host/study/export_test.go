package study

import "github.com/cage-qat/cage/internal/lists"

// EvaluationIDs returns the IDs of the study's evaluations.
func EvaluationIDs(s *Study) []string {
	return lists.Map(s.evaluations, func(e *positionedEvaluation) string { return e.ID() })
}
