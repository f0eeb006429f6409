package ruler_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/cage-qat/cage/host/deploy/ruler"
)

// A needle in a haystack of noise. Tokens are words here.
func Example() {
	list, err := ruler.Select([]string{"niah_single_1"})
	if err != nil {
		panic(err)
	}
	g := &ruler.Generator{
		Inputs: ruler.Inputs{Words: &ruler.Words{Nouns: []string{"river"},
			Adjectives: []string{"quiet"}}},
		Count: func(text string) (int, error) { return len(strings.Fields(text)), nil },
		Seed:  ruler.DefaultSeed,
	}
	samples, err := g.Samples(context.Background(), list[0], 300, 1, 1)
	if err != nil {
		panic(err)
	}
	for _, s := range samples {
		fmt.Println(len(strings.Fields(s.Prompt())), s.AnswerPrefix, s.Outputs)
	}
	// Output:
	// 172  The special magic number for quiet-river mentioned in the provided text is [5661907]
}
