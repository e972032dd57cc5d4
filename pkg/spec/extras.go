package spec

// Extras are what an operator adds to machines beside the components.
type Extras struct {
	// FileAssets are files, there before any unit of a role starts.
	FileAssets []FileAsset `yaml:"fileAssets"`
	// Hooks are systemd units.
	Hooks []Hook `yaml:"hooks"`
	// AdditionalUserData are further parts of the user data, for cloud-init where that exists: Hardtack
	// itself runs nothing of them.
	AdditionalUserData []UserDataPart `yaml:"additionalUserData"`
}

// FileAsset is one file on the machines of some roles.
type FileAsset struct {
	// Path is absolute and clean.
	Path string `yaml:"path"`
	// Content is text; Base64 is for what is not. One of them is given.
	Content string `yaml:"content,omitempty"`
	Base64  string `yaml:"base64,omitempty"`
	// Mode is octal; "" is "0644". Owner is "user:group"; "" is "root:root".
	Mode  string `yaml:"mode"`
	Owner string `yaml:"owner"`
	// Roles says which machines get it; empty is all.
	Roles []string `yaml:"roles"`
}

// Hook is one systemd unit on the machines of some roles.
type Hook struct {
	// Name is the unit's; without a suffix it is a service.
	Name string `yaml:"name"`
	// Manifest is the [Service] section without its header, or with any header the whole unit.
	Manifest string   `yaml:"manifest"`
	Before   []string `yaml:"before"`
	After    []string `yaml:"after"`
	Requires []string `yaml:"requires"`
	// Roles says which machines run it; empty is all.
	Roles []string `yaml:"roles"`
	// Enabled false leaves the unit out; nil is true.
	Enabled *bool `yaml:"enabled"`
}

// UserDataPart is one MIME part.
type UserDataPart struct {
	// Name is the part's file name, Type its MIME type ("text/x-shellscript").
	Name    string `yaml:"name"`
	Type    string `yaml:"type"`
	Content string `yaml:"content"`
	// Roles says which machines get it; empty is all.
	Roles []string `yaml:"roles"`
}
