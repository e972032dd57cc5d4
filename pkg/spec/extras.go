package spec

// Extras are an operator's additions to the machines, beside the components.
type Extras struct {
	// FileAssets are files of the operator. They are written before any unit of a role starts.
	FileAssets []FileAsset `yaml:"fileAssets"`
	// Hooks are systemd units of the operator.
	Hooks []Hook `yaml:"hooks"`
	// AdditionalUserData are further parts of the user data, for cloud-init if the image has it: Hardtack runs none of
	// them.
	AdditionalUserData []UserDataPart `yaml:"additionalUserData"`
}

// FileAsset is one file on the machines of some roles. It has Content or Base64, not both.
type FileAsset struct {
	// Path is the absolute path of the file.
	Path string `yaml:"path"`
	// Content is the file's content as text.
	Content string `yaml:"content,omitempty"`
	// Base64 is the file's content in base64, for content that is not text.
	Base64 string `yaml:"base64,omitempty"`
	// Mode is the file's mode in octal; "0644" if it is not set.
	Mode string `yaml:"mode"`
	// Owner is the file's owner as user:group; root:root if it is not set.
	Owner string `yaml:"owner"`
	// Roles are the roles whose machines get the file; none is every machine.
	Roles []string `yaml:"roles"`
}

// Hook is one systemd unit on the machines of some roles.
type Hook struct {
	// Name is the unit's name; without a suffix the unit is a service.
	Name string `yaml:"name"`
	// Manifest is the [Service] section without its header, or a whole unit if it has any header.
	Manifest string `yaml:"manifest"`
	// Before are the units that start after the hook.
	Before []string `yaml:"before"`
	// After are the units that start before the hook.
	After []string `yaml:"after"`
	// Requires are the units that the hook requires.
	Requires []string `yaml:"requires"`
	// Roles are the roles whose machines run the unit; none is every machine.
	Roles []string `yaml:"roles"`
	// Enabled is whether the unit is installed; true if it is not set.
	Enabled *bool `yaml:"enabled"`
}

// UserDataPart is one MIME part.
type UserDataPart struct {
	// Name is the part's file name.
	Name string `yaml:"name"`
	// Type is the part's MIME type, such as text/x-shellscript.
	Type string `yaml:"type"`
	// Content is the part's content.
	Content string `yaml:"content"`
	// Roles are the roles whose machines get the part; none is every machine.
	Roles []string `yaml:"roles"`
}
