package ruler

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/internal/pyrandom"
)

const instruction = "Answer the question based on the given documents. " +
	"Only give me the answer and do not output any other words.\n\n"

var questionFrame = frame{
	body: instruction + "The following are given documents.\n\n{context}\n\n" +
		instruction + "Question: {query}",
	prefix: " Answer:",
}

// questions asks about one of several documents (scripts/data/synthetic/qa.py).
func questions(s *session, about *Documents) (next, error) {
	d := &questionDraw{session: s, documents: about}
	if n := len(d.documents.questions); s.samples > n {
		return nil, fmt.Errorf("the file has %d questions, but %d samples were requested", n, s.samples)
	}
	f := &filler{session: s, minUnits: 10, probeUnits: 10, build: d.prompt}
	return f.start()
}

type questionDraw struct {
	*session
	documents *Documents
}

func (d *questionDraw) prompt(index, n int) (Sample, error) {
	q := d.documents.questions[index]
	list, err := d.list(q, n)
	if err != nil {
		return Sample{}, err
	}
	pyrandom.Shuffle(d.fresh(), list)
	texts := make([]string, len(list))
	for i, k := range list {
		texts[i] = "Document " + strconv.Itoa(i+1) + ":\n" + d.documents.texts[k]
	}
	p := d.fill(questionFrame, "{context}", strings.Join(texts, "\n\n"), "{query}", q.text)
	p.Outputs = q.answers
	return p, nil
}

var errFewDocuments = errors.New("a question's documents exceed the length: choose a larger length")

// list draws the documents of a prompt: first those that contain the answer, then others of the
// same article, then any. If fewer than n documents exist, all of them are repeated.
func (d *questionDraw) list(q question, n int) ([]int, error) {
	own, more, all := q.documents, q.related, len(d.documents.texts)
	if n >= all {
		return lists.Make(n, func(i int) int { return i % all }), nil
	}
	if n-len(own) <= len(more) {
		if n < len(own) {
			return nil, errFewDocuments
		}
		return slices.Concat(own, d.pick(more, n-len(own))), nil
	}
	first := slices.Concat(own, more)
	taken := make(map[int]bool, len(first))
	for _, i := range first {
		taken[i] = true
	}
	var others []int
	for i := range all {
		if !taken[i] {
			others = append(others, i)
		}
	}
	return append(first, d.pick(others, n-len(first))...), nil
}

func (d *questionDraw) pick(list []int, k int) []int {
	return lists.Map(d.rng.Sample(len(list), k), func(i int) int { return list[i] })
}
