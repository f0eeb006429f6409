package report

import "github.com/cage-qat/cage/host/study"

// Damaged returns, by the ID of a cell, the errors that one pass over the runs finds.
func Damaged(s *study.Study, results []study.Result) (map[string]error, error) {
	damaged := unreadable{}
	_, err := build(s, results, damaged)
	return damaged, err
}
