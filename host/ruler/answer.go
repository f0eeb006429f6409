package ruler

// Answer is a line of a file of answers, with the fields that RULER stores.
type Answer struct {
	Index   int      `json:"index"`
	Pred    string   `json:"pred"`
	Input   string   `json:"input"`
	Outputs []string `json:"outputs"`
	Length  int      `json:"length"`
}
