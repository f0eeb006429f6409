package tokenizer

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/dlclark/regexp2/v2"

	"github.com/cage-qat/cage/internal/testing/testfile"
)

// characters are those of which random texts are made: of every class, with more than
// one length, and what patterns name.
var characters = []rune("abzABZstmdrevlSTLſ'’ \t\n\r\u00a0\u2028\u3000019٣½Ⅷéßǅ模🙂!,.-_/<|>\u0301\u200d\ufffd\x00\x7f\u0085\U00010400\U0001d7d8▁")

func randomText(rng *rand.Rand, length int) string {
	text := make([]rune, rng.IntN(length))
	for i := range text {
		text[i] = characters[rng.IntN(len(characters))]
		if i > 0 && rng.IntN(3) == 0 {
			text[i] = text[i-1]
		}
	}
	return string(text)
}

// expressions are the patterns for which there are scanners, compiled.
var expressions = sync.OnceValue(func() map[string]*regexp2.Regexp {
	compiled := map[string]*regexp2.Regexp{}
	for expr := range wordPatterns {
		compiled[expr] = regexp2.MustCompile(expr, regexp2.Multiline)
	}
	return compiled
})

// sameAsExpression compares a scanner with the expression that it stands for.
func sameAsExpression(t *testing.T, expr string, text string) {
	t.Helper()
	re := expressions()[expr]
	var want, got []string
	runes := []rune(text)
	err := re.FindRunesMatches(runes, 0, func(m regexp2.MatchView) bool {
		index, length, _ := m.GroupRange(0)
		want = append(want, string(runes[index:index+length]))
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Join(want, "") != text {
		t.Fatalf("%q leaves gaps in %q: %q", expr, text, want)
	}
	p := &preTokenizer{scan: &scanner{classes(), wordPatterns[expr]}}
	_ = p.eachWord(text, true, func(word string) error {
		got = append(got, word)
		return nil
	})
	if !slices.Equal(got, want) {
		t.Fatalf("%q by %q:\n got %q\nwant %q", text, expr, got, want)
	}
}

func TestWordPatterns(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for expr := range wordPatterns {
		for range 1500 {
			sameAsExpression(t, expr, randomText(rng, 40))
		}
	}
}

// FuzzWords: scanners find the words that an engine of regular expressions finds.
func FuzzWords(f *testing.F) {
	f.Add("I'LL'ſx don't  3.14\r\n\n ½a\u3000 ")
	f.Fuzz(func(t *testing.T, text string) {
		if !utf8.ValidString(text) || len(text) > 200 {
			return
		}
		for expr := range wordPatterns {
			sameAsExpression(t, expr, text)
		}
	})
}

// inPieces encodes text as a stream of pieces, cut in a text that grows by step bytes.
func inPieces(t *testing.T, tok *HuggingFace, text string, step int) (ids []int32, cuts int) {
	t.Helper()
	encode, begin := tok.Encode, 0
	for end := step; begin < len(text); end += step {
		cut := len(text) - begin
		if end < len(text) {
			cut = tok.Cut([]byte(text[begin:end]))
		}
		if cut == 0 {
			continue
		}
		more, err := encode(text[begin : begin+cut])
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, more...)
		begin += cut
		encode = tok.EncodeRest
		cuts++
	}
	return ids, cuts
}

// TestCut: pieces have the ids of the whole, wherever a text ends that is cut.
func TestCut(t *testing.T) {
	corpus := testfile.Read(t, "testdata/corpus.txt")
	rng := rand.New(rand.NewPCG(5, 6))
	special := []string{"<|begin|>", "<mask>", "  <mask>\n ", "<s>", "requantizes", " and ", "\n\n", "it's ", "a b c"}
	for _, name := range []string{"gpt2", "gpt2_prefix", "llama3", "llama2", "metaspace"} {
		tok, golden := readGolden(t, name)
		cuts := 0
		same := func(text string) {
			t.Helper()
			want, err := tok.Encode(text)
			if err != nil {
				t.Fatal(err)
			}
			for _, step := range []int{1, 2, 7, 64} {
				got, n := inPieces(t, tok, text, step)
				if cuts += n; !slices.Equal(got, want) {
					t.Fatalf("%s, in steps of %d, %q:\n got %v\nwant %v", name, step, clip(text), got, want)
				}
			}
		}
		for _, c := range golden.Cases {
			same(c.Text)
		}
		for range 300 {
			var text strings.Builder
			for range 6 {
				at := rng.IntN(len(corpus) - 40)
				text.WriteString(strings.ToValidUTF8(string(corpus[at:at+rng.IntN(40)]), "?"))
				text.WriteString(randomText(rng, 8))
				text.WriteString(special[rng.IntN(len(special))])
			}
			same(text.String())
		}
		if few := name == "gpt2_prefix"; few != (cuts < 10000) {
			t.Errorf("%s: %d cuts", name, cuts)
		}
	}
}

// TestCutOfDecomposed: where normalization makes a mark of the end of a letter, the pattern gives
// it the line ends behind it, so that there is no place before them.
func TestCutOfDecomposed(t *testing.T) {
	for _, c := range []struct {
		form, text string
		want       int
	}{
		{"NFC", "ab \u0958\n", 2}, {"NFC", "ab é\n", 5},
	} {
		tok := parsed(t, edited(t, "llama3", map[string]string{"normalizer": `{"type":"` + c.form + `"}`}))
		if got := tok.Cut([]byte(c.text)); got != c.want {
			t.Errorf("%s, %q is cut at %d, want %d", c.form, c.text, got, c.want)
		}
	}
}

// TestAddedTokensAreNotCut: none is divided, and none loses the white space it claims.
func TestAddedTokensAreNotCut(t *testing.T) {
	for tokens, texts := range map[string][]string{
		`[{"id":900,"content":"a b c"}]`:                         {"xx a b c yy", "a b", "a b c a b ca b c"},
		`[{"id":900,"content":"a","rstrip":true}]`:               {"x a  \n b", "a a a", "ba b"},
		`[{"id":900,"content":"b","lstrip":true}]`:               {"x a  \n b", "a  b  b", "ba b"},
		`[{"id":900,"content":"a b","normalized":true}]`:         {"a b a b"},
		`[{"id":900,"content":"x\ny"},{"id":901,"content":"x"}]`: {"ax\ny x\nz"},
	} {
		for _, name := range []string{"gpt2", "llama3", "llama2"} {
			first := parsed(t, edited(t, name, map[string]string{"added_tokens": "[]", "post_processor": "null"})).Info().VocabSize
			tokens := strings.NewReplacer("900", strconv.Itoa(first), "901", strconv.Itoa(first+1)).Replace(tokens)
			tok := parsed(t, edited(t, name, map[string]string{"added_tokens": tokens, "post_processor": "null"}))
			for _, text := range texts {
				want, err := tok.Encode(text)
				if err != nil {
					t.Fatal(err)
				}
				if got, _ := inPieces(t, tok, text, 1); !slices.Equal(got, want) {
					t.Errorf("%s, %s, %q:\n got %v\nwant %v", name, tokens, text, got, want)
				}
			}
		}
	}
}

// TestWordMarks: cutting at marks changes nothing, and is left alone where tokens have
// marks within.
func TestWordMarks(t *testing.T) {
	tok, golden := readGolden(t, "llama2")
	if !tok.model.cutsAtMarks {
		t.Fatal("words are not cut at marks")
	}
	whole, _ := readGolden(t, "llama2")
	whole.model.cutsAtMarks = false
	rng := rand.New(rand.NewPCG(9, 10))
	texts := []string{"", " ", "   ", "a ", " a", "▁▁ ▁"}
	for range 1000 {
		texts = append(texts, randomText(rng, 60))
	}
	for _, c := range golden.Cases {
		texts = append(texts, c.Text)
	}
	for _, text := range texts {
		want, err := whole.Encode(text)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := tok.Encode(text); err != nil || !slices.Equal(got, want) {
			t.Fatalf("%q: %v, %v; want %v", text, got, err, want)
		}
	}
	for merge, want := range map[string]bool{`["a","b"]`: true, `["▁","▁"]`: true, `["▁","a"]`: true, `["a","▁"]`: false, `["▁a","▁"]`: false} {
		text := `{"model":{"type":"BPE","vocab":{"a":0,"b":1,"▁":2,"ab":3,"▁▁":4,"▁a":5,"a▁":6,"▁a▁":7},"merges":[["▁","a"],` + merge + `]}}`
		tok, err := ReadHuggingFace([]byte(text), nil)
		if err != nil || tok.model.cutsAtMarks != want {
			t.Errorf("%s: %v", merge, err)
		}
	}
}
