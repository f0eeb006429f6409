package tokenizer

import (
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"golang.org/x/text/unicode/norm"
)

var forms = map[string]norm.Form{"NFC": norm.NFC, "NFD": norm.NFD, "NFKC": norm.NFKC, "NFKD": norm.NFKD}

// TestManyMarks: a normal form has only what is in the text, however many marks a letter has.
func TestManyMarks(t *testing.T) {
	acute, below := strings.Repeat("\u0301", 40), strings.Repeat("\u0323", 40)
	for _, c := range []struct{ form, text, want string }{
		{"NFC", "a" + acute, "á" + acute[2:]},
		{"NFD", "á" + acute, "a\u0301" + acute},
		{"NFC", "ﬁa" + acute + below + "é", "ﬁạ" + below[2:] + acute + "é"},
		{"NFKC", "ﬁa" + strings.Repeat("\u0301\u0323", 40), "fiạ" + below[2:] + acute},
		{"NFKD", "ﬁạ" + acute + "\u034f" + acute, "fia\u0323" + acute + "\u034f" + acute},
	} {
		normalize, err := newNormalizer([]byte(`{"type": "` + c.form + `"}`))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := normalize(c.text, false, mostOf(c.text)); err != nil || got != c.want {
			t.Errorf("%s of %+q is %+q, %v, want %+q", c.form, c.text, got, err, c.want)
		}
	}
}

// TestFormsByRule: where no letter has many marks, both ways give the same.
func TestFormsByRule(t *testing.T) {
	corpus, err := os.ReadFile("testdata/corpus.txt")
	if err != nil {
		t.Fatal(err)
	}
	texts := []string{string(corpus)}
	pool := []rune("aeounAK ﬁΩÅ각한가각कड\u093c\u09c7\u09be\u0300\u0301\u0302\u0308\u030a\u0323\u0327\u0338\u0345\u05b4\u0f71\u0f72\u1100\u1161\u11a8\u2126\u212b\u3099\u0344\u0340\u2f71\U0001d15e\U0001d165")
	rng := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		text := make([]rune, 1+rng.IntN(12))
		for i := range text {
			text[i] = pool[rng.IntN(len(pool))]
		}
		texts = append(texts, string(text))
	}
	for name, form := range forms {
		for _, text := range texts {
			if got, want := inFormByRule(form, text), form.String(text); got != want {
				t.Fatalf("%s of %+q is %+q, want %+q", name, text, got, want)
			}
		}
	}
}
