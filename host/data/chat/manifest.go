package chat

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/data/chat/rows"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/internal/plainjson"
)

// The names of the files of a data set, beside [tokenizer.TemplateFile] and the tokenizer's
// tokenizer.json.
const (
	TrainFile       = "train.chat"
	ValFile         = "val.chat"
	ManifestFile    = "chat.json"
	manifestVersion = 1
)

// Files lists the names of all files of a data set.
var Files = []string{TrainFile, ValFile, ManifestFile, tokenizer.TemplateFile, tokenizer.DefinitionFile, tokenizer.ConfigFile}

// Manifest says what a data set was made from and what it contains; it is stored as
// chat.json.
type Manifest struct {
	Version int `json:"version"`
	rows.Origin
	// Tokens and Variables are the inputs of the template.
	Tokens    SpecialTokens  `json:"tokens"`
	Variables map[string]any `json:"variables,omitempty"`
	Special   Special        `json:"special_in_content"`
	// AddedTokens are the marks of the template that were added to the tokenizer.
	AddedTokens []AddedToken `json:"added_tokens,omitempty"`
	Train       Part         `json:"train"`
	Val         Part         `json:"val"`
	Counts
	ValFraction float64 `json:"val_fraction,omitempty"`
	Seed        uint64  `json:"seed"`
	// Seconds is how long the preparation took.
	Seconds float64 `json:"seconds"`
}

// Part describes one chat file.
type Part struct {
	Documents int64  `json:"documents"`
	Tokens    int64  `json:"tokens"`
	Learned   int64  `json:"learned"` // number of tokens that carry loss
	Longest   int64  `json:"longest"` // number of tokens in the longest document
	SHA256    string `json:"sha256"`
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

func (m *Manifest) parse(text []byte) error {
	if err := plainjson.UnmarshalStrict(text, m); err != nil {
		return err
	}
	if m.Version != manifestVersion {
		return fmt.Errorf("version %d, this program reads version %d", m.Version, manifestVersion)
	}
	return nil
}
