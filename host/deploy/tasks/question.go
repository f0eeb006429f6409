package tasks

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// filledDoc is a row as question and answers.
type filledDoc struct {
	questions []string // one, or one for each choice
	choices   []string
	gold      int    // number of the right choice
	target    string // of continuations and generated texts
}

// ask fills the templates of a task in.
func (t *Task) ask(d Doc) (a filledDoc, err error) {
	for _, source := range t.Question {
		q, err := t.render("question", source, d)
		if err != nil {
			return a, err
		}
		a.questions = append(a.questions, t.cleanText(q))
	}
	if t.Target != "" {
		if a.target, err = t.render("target", t.Target, d); err != nil {
			return a, err
		}
	}
	if t.Kind != Choices {
		return a, nil
	}
	if a.choices, err = t.choices(d, a.target); err != nil {
		return a, err
	}
	a.gold, err = t.gold(d, len(a.choices))
	return a, err
}

// choices are the continuations of which one is right. With several questions it is one for all.
func (t *Task) choices(d Doc, target string) (list []string, err error) {
	if len(t.Question) > 1 {
		return slices.Repeat([]string{target}, len(t.Question)), nil
	}
	if t.ChoicesOf != "" {
		list, err = d.list(t.ChoicesOf)
	}
	for _, source := range t.Choice {
		c, err := t.render("choices", source, d)
		if err != nil {
			return nil, err
		}
		list = append(list, c)
	}
	for i := range list {
		list[i] = t.cleanText(list[i])
	}
	if err == nil && len(list) < 2 {
		err = fmt.Errorf("%s: %d choices: want two or more", d.Place, len(list))
	}
	return list, err
}

// gold is the number of the right choice.
func (t *Task) gold(d Doc, choices int) (int, error) {
	text, err := t.render("gold", t.Gold, d)
	if err != nil {
		return 0, err
	}
	at, err := strconv.Atoi(strings.TrimSpace(text))
	if t.GoldOf != "" {
		var labels []string
		if labels, err = d.list(t.GoldOf); err == nil {
			at = slices.Index(labels, text)
		}
	}
	if err != nil || at < 0 || at >= choices {
		return 0, fmt.Errorf("%s: the right choice is %q: want one of %d", d.Place, text, choices)
	}
	return at, nil
}

// question is what stands before the answer: where each choice has a question of its own, that of the given choice.
func (a filledDoc) question(choice int) string {
	return a.questions[min(choice, len(a.questions)-1)]
}

// answer is the right answer, as an example shows it.
func (a filledDoc) answer() string {
	if len(a.choices) > 0 {
		return a.choices[a.gold]
	}
	return a.target
}

// characters are those of a choice, by which acc_norm divides: Unicode code points, as Python counts them.
func characters(s string) int { return utf8.RuneCountInString(s) }
