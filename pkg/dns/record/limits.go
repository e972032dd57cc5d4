package record

// Limits are the limits of a DNS service. 0 is no limit.
type Limits struct {
	// SetValues is the maximum number of values in a set: 400 on Route 53, 100 on BIND by default
	// (max-records-per-type).
	SetValues int `json:"set_values"`
	// BatchValues and BatchCharacters are the maximum of one change: 1000 values and 32,000 characters on Route 53.
	BatchValues     int `json:"batch_values"`
	BatchCharacters int `json:"batch_characters"`
}
