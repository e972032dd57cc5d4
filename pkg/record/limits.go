package record

// Limits says what a DNS service takes. A zero field means that there is no such limit.
type Limits struct {
	// SetValues is how many values one set may hold: 400 on Route 53, 100 on BIND by default
	// (max-records-per-type).
	SetValues int `json:"set_values"`
	// BatchValues and BatchCharacters are for one change: 1000 values and 32,000 characters on Route 53.
	BatchValues     int `json:"batch_values"`
	BatchCharacters int `json:"batch_characters"`
}
