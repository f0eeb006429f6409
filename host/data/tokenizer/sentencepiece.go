package tokenizer

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/cage-qat/cage/internal/plainjson"
)

// SentencePiece describes a tokenizer for programs that compute its ids as SentencePiece does: they
// write spaces as "▁" and repeatedly merge the adjacent pair whose merged text is the token with
// the highest score, leftmost first. Finally, characters that are not tokens become bytes.
type SentencePiece struct {
	// Scores holds the score of each id below VocabSize. The later a merge makes the token, the
	// lower the score.
	Scores []float32
	// Unknown is the id of the unknown token, or [NoToken].
	Unknown int32
	// Prefix reports whether "▁" is put before a text, and before text that follows an added token.
	Prefix bool
	// Differs lists the reasons why some texts get other ids than the tokenizer assigns. It is
	// empty if no text does.
	Differs []string
}

// SentencePiece describes a byte-pair model with byte fallback, as of Llama 2 and Mistral, in
// SentencePiece's terms. For any other model, the error is an [*UnsupportedError].
func (t *HuggingFace) SentencePiece() (*SentencePiece, error) {
	var def definition
	if err := plainjson.Unmarshal(t.definition, &def); err != nil {
		return nil, err
	}
	if err := t.checkPieces(&def); err != nil {
		return nil, err
	}
	s := &SentencePiece{Unknown: t.model.unk, Scores: make([]float32, t.info.VocabSize)}
	if err := s.setSpaces(t, &def); err != nil {
		return nil, err
	}
	found := func(a addedToken) bool { return a.Normalized || a.LStrip || a.RStrip || a.SingleWord }
	if i := slices.IndexFunc(def.AddedTokens, found); i >= 0 {
		s.differ(fmt.Sprintf("the added token %q is normalized, lstrip, rstrip or single_word, "+
			"but is matched only by its exact text", def.AddedTokens[i].Content))
	}
	s.setScores(t, def.AddedTokens)
	return s, nil
}

// maxExactRank bounds the ranks that float32 can distinguish.
const maxExactRank = 1 << 24

// checkPieces rejects models that need more than characters, bytes and merges.
func (t *HuggingFace) checkPieces(def *definition) error {
	unsupported := func(feature, hint string) error {
		return &UnsupportedError{"model", feature, hint}
	}
	switch {
	case t.pre.byteLevel || !def.Model.ByteFallback:
		return unsupported("a model without byte_fallback", "SentencePiece needs tokens for bytes")
	case slices.Contains(t.model.bytes[:], noID):
		return unsupported("a model without a token for every byte",
			"SentencePiece needs <0x00> to <0xFF>")
	case def.Model.IgnoreMerges:
		return unsupported("ignore_merges", "SentencePiece only merges adjacent pieces")
	case len(def.Model.Merges) > maxExactRank:
		return unsupported(fmt.Sprintf("a list of %d merges", len(def.Model.Merges)),
			fmt.Sprintf("float32 scores distinguish at most %d", maxExactRank))
	}
	return nil
}

// setSpaces determines how the tokenizer writes spaces, and whether it puts one before a text:
// Llama 2 does so in its normalizer, newer files in their pre-tokenizer.
func (s *SentencePiece) setSpaces(t *HuggingFace, def *definition) error {
	replaces := false
	for _, step := range t.normalize {
		switch {
		case step.Type == "Prepend" && !s.Prefix && !replaces:
			s.Prefix = true
		case step.Type == "Replace" && !replaces:
			replaces = true
		default:
			return &UnsupportedError{"normalizer", fmt.Sprintf("type %q", step.Type),
				`SentencePiece puts "▁" before texts and for spaces`}
		}
	}
	m := t.pre.metaspace
	switch {
	case m == nil && replaces && len(t.pre.steps) == 0:
		return nil
	case m == nil || s.Prefix:
		return &UnsupportedError{"pre_tokenizer", "this way of splitting texts",
			"SentencePiece does not split texts before it merges"}
	}
	if s.Prefix = m.scheme != "never"; s.Prefix {
		s.differ("a text that begins with a space gets no second one before it")
	}
	if m.scheme == "first" && len(def.AddedTokens) > 0 {
		s.differ("a text after an added token gets no space before it")
	}
	for _, pair := range def.Model.Merges {
		if joined := pair[0] + pair[1]; m.split && strings.LastIndex(joined, spaceMark) > 0 {
			s.differ(fmt.Sprintf("words end before every space, but the token %q contains one", joined))
			break
		}
	}
	return nil
}

func (s *SentencePiece) differ(reason string) { s.Differs = append(s.Differs, reason) }

// setScores sets the score of every token to the negative rank of the merge that makes it.
//
// The last merge that makes a token is always the same: merges within the token do not depend on
// the rest of the text as long as none crosses its ends. So it is found by merging the token's own
// text. SentencePiece, however, merges every pair whose text is a token: if merges leave the text
// of a token in two parts, ids can differ.
func (s *SentencePiece) setScores(t *HuggingFace, added []addedToken) {
	last := float32(-len(t.model.merges) - 1)
	for id := range s.Scores {
		s.Scores[id] = last // for tokens that no merge makes; no program uses it
	}
	whole := map[int32]bool{} // matched in texts before any merge
	for _, a := range added {
		whole[a.ID] = true
	}
	var unmerged []string // tokens of two pieces that no merge joins
	var g wordMerger
	for _, token := range slices.Sorted(maps.Keys(t.model.vocab)) {
		id := t.model.vocab[token]
		parts, rank := t.model.mergeText(token, &g)
		switch {
		case whole[id]:
			s.Scores[id] = 0
		case len(parts) == 2 || len(parts) == 0 && t.model.joins(token):
			unmerged = append(unmerged, token)
		case len(parts) == 1 && rank >= 0:
			s.Scores[id] = float32(-rank)
		}
	}
	if len(unmerged) > 0 {
		s.differ(fmt.Sprintf("SentencePiece merges two pieces into the token %q, "+
			"for which there is no merge (one of %d such tokens)", unmerged[0], len(unmerged)))
	}
}

// joins reports whether a text consists of two parts, each a token or one character.
func (m *bpe) joins(text string) bool {
	part := func(text string) bool {
		_, ok := m.vocab[text]
		return ok || utf8.RuneCountInString(text) == 1
	}
	for i := range text {
		if i > 0 && part(text[:i]) && part(text[i:]) {
			return true
		}
	}
	return false
}

// mergeText merges the characters of a text. It returns the resulting ids, or nil if a character is
// not a token, and the rank of the last merge, or −1 if there was none.
func (m *bpe) mergeText(text string, g *wordMerger) (ids []int32, rank int32) {
	g.ids = g.ids[:0]
	for _, char := range text {
		id, ok := m.vocab[string(char)]
		if !ok {
			return nil, -1
		}
		g.ids = append(g.ids, id)
	}
	return m.merge(nil, g)
}
