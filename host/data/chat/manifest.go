package chat

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/data/dataset"
)

// Manifest says what a data set was made from and what it contains; it is stored as
// chat.json.
type Manifest struct {
	dataset.Manifest
	// Tokens and Variables are the inputs of the template.
	Tokens    SpecialTokens  `json:"tokens"`
	Variables map[string]any `json:"variables,omitempty"`
	Special   Special        `json:"special_in_content"`
	// AddedTokens are the marks of the template that were added to the tokenizer.
	AddedTokens []AddedToken `json:"added_tokens,omitempty"`
	Counts
}

// Counts says what became of the rows.
type Counts struct {
	Rows      int64 `json:"rows"`
	Documents int64 `json:"documents"`
	// Dropped counts the conversations that yield no document, by reason, the most
	// frequent first.
	Dropped []DroppedRows `json:"dropped"`
	// Bad is the number of rows that hold no conversation; FirstBad says what was wrong
	// with the first of them.
	Bad      int64  `json:"bad"`
	FirstBad string `json:"first_bad,omitempty"`
}

// DroppedRows counts the conversations that were dropped for one reason.
type DroppedRows struct {
	Reason Reason `json:"reason"`
	Rows   int64  `json:"rows"`
	First  string `json:"first"` // location of the first of them
}

// counts gathers Counts.
type counts struct{ Counts }

// maxReasons bounds the number of reasons that are told apart: a template can say another
// one for every row.
const (
	maxReasons   = 20
	otherReasons = refusal + "for other reasons"
)

func (c *counts) add(o outcome) {
	c.Rows++
	switch {
	case o.document != nil:
		c.Documents++
	case o.bad != nil:
		c.Bad++
		if c.FirstBad == "" {
			c.FirstBad = fmt.Sprintf("%s: %v", o.place, o.bad)
		}
	default:
		c.drop(o.dropped, o.place)
	}
}

func (c *counts) drop(reason Reason, place string) {
	i := slices.IndexFunc(c.Dropped, func(d DroppedRows) bool { return d.Reason == reason })
	if i < 0 && len(c.Dropped) >= maxReasons && reason != otherReasons {
		c.drop(otherReasons, place)
		return
	}
	if i < 0 {
		i = len(c.Dropped)
		c.Dropped = append(c.Dropped, DroppedRows{Reason: reason, First: place})
	}
	c.Dropped[i].Rows++
	slices.SortStableFunc(c.Dropped, func(a, b DroppedRows) int { return cmp.Compare(b.Rows, a.Rows) })
}

// explain says why there are no documents, as the end of a message.
func (c *counts) explain() string {
	if c.Rows == 0 {
		return ": there are no rows"
	}
	var parts []string
	for _, d := range c.Dropped {
		parts = append(parts, fmt.Sprintf("%d: %s (first at %s)", d.Rows, d.Reason, d.First))
	}
	if c.Bad > 0 {
		parts = append(parts, fmt.Sprintf("%d bad (%s)", c.Bad, c.FirstBad))
	}
	return fmt.Sprintf("; of %d rows, %s", c.Rows, strings.Join(parts, "; "))
}
