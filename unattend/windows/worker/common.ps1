# What winlab's worker scripts share. Each is run over WinRM from the payload CD, with settings as one JSON document on
# the standard input and the result as one line of JSON, the last line of the standard output; a failure is a message on
# the standard error and exit code 1. docs/worker-scripts.md has the contract. Windows PowerShell 5.1.
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'

$Payload = Split-Path -Parent $PSScriptRoot
$ProgramFolder = 'C:\k'
$ContainerdFolder = 'C:\Program Files\containerd'
$PluginFolder = 'C:\opt\cni\bin'
$NetworkFolder = 'C:\etc\cni\net.d'
$WinlabFolder = 'C:\winlab'
# Has the SHA-256 of the payload.json whose programs are installed: a golden image may have older programs than the CD
$InstalledFrom = 'C:\winlab\payload.sha256'
# Names the features that features.ps1 has finished installing: a golden image may have been made for another network
$FeaturesSet = 'C:\winlab\features.txt'
# Names each import that may not be on the disk yet: a mark of the start of Windows that it was in, then the images'
# digests
$Importing = 'C:\winlab\importing.txt'
$ImportingKey = 'SOFTWARE\winlab-importing-' # with that mark, a volatile key
# Has the SHA-256 of the payload.json whose images containerd has
$ImagesFrom = 'C:\winlab\images.sha256'
# Names the files and registry values that configure.ps1 has written
$GivenRecord = 'C:\winlab\given.json'
# Exists while winlab has set variables of containerd's service
$EnvironmentMark = 'C:\winlab\containerd-environment.txt'
$ProxyNetwork = 'C:\winlab\proxy-network.txt' # the ID of the HNS network when winlab last started kube-proxy
# The log of each script that changes something, in a file of its name
$LogFolder = 'C:\winlab\logs'
$LogBytes = 1MB
$script:Changing = ''
$script:LogFailed = $false
$script:SerialTries = 5
$ContainerdLog = 'C:\var\log\containerd\containerd.log'
$KubeadmLog = 'C:\var\log\kubeadm\join.log'
# A volatile key exists until the next start of Windows, and so shows whether a restart is still pending
$RestartKey = 'SOFTWARE\winlab-restart'
# Who may read a secret: SYSTEM and Administrators, nothing inherited
$PrivateFile = 'D:PAI(A;;FA;;;SY)(A;;FA;;;BA)'
$PrivateFolder = 'O:BAD:PAI(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)'
$PrivateKey = 'D:PAI(A;CI;KA;;;SY)(A;CI;KA;;;BA)'
# Programs that SYSTEM runs: everyone may read them
$ProgramsFolder = 'O:BAD:PAI(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)(A;OICI;0x1200a9;;;AU)'

# -- settings and result

# powershell.exe -File passes a redirected standard input to the script as $input, line by line, and would compete for
# it with [Console]::In; if it does not pass it, [Console]::In still has all of it
function Read-Settings([object[]]$Piped) {
    $text = ($Piped -join "`n").Trim()
    if (-not $text -and [Console]::IsInputRedirected) {
        try { [Console]::InputEncoding = New-Object System.Text.UTF8Encoding $false } catch { $text = '' }
        $text = [Console]::In.ReadToEnd()
    }
    $text = $text.Trim().TrimStart([char]0xFEFF)
    if (-not $text) { return @{} }
    # ConvertFrom-Json uses this itself; but module logging logs a cmdlet's arguments, here with a token
    Add-Type -AssemblyName 'System.Web.Extensions'
    $settings = (New-Object System.Web.Script.Serialization.JavaScriptSerializer).DeserializeObject($text)
    if ($settings -isnot [System.Collections.IDictionary]) { throw 'The settings are no JSON object.' }
    return $settings
}

# ASCII only, so that no code page matters
function Write-Result($Result) {
    $json = ConvertTo-Json -InputObject $Result -Compress -Depth 8
    [Console]::Out.WriteLine([regex]::Replace($json, '[^\x20-\x7e]', {
        param($match)
        '\u{0:x4}' -f [int][char]$match.Value
    }))
}

function Write-Progressing([string]$Text) {
    [Console]::Out.WriteLine("winlab: $Text")
    Write-Log $Text
}

# -- what remains if the connection is cut

# A line of the script's own log, for logs.ps1. The work does not depend on it
function Write-Log([string]$Text) {
    if (-not $script:Changing -or $script:LogFailed) { return }
    try {
        [System.IO.Directory]::CreateDirectory($LogFolder) | Out-Null
        $file = "$LogFolder\$script:Changing.log"
        if ((Test-Path -LiteralPath $file) -and (Get-Item -LiteralPath $file).Length -gt $LogBytes) {
            [System.IO.File]::Copy($file, "$file.old", $true)
            [System.IO.File]::Delete($file)
        }
        [System.IO.File]::AppendAllText($file, "$([DateTime]::UtcNow.ToString('o')) $Text`r`n")
    } catch {
        $script:LogFailed = $true
    }
}

# winlab reads this even if Windows does not respond. Only one program can have the port open, and the beacon may
function Write-Serial([string]$Text) {
    $line = "winlab: script=$script:Changing $($Text -replace '\s+', ' ')"
    for ($try = 1; $try -le $script:SerialTries; $try++) {
        if ($try -gt 1) { Start-Sleep -Milliseconds 300 }
        $port = New-Object System.IO.Ports.SerialPort 'COM1', 115200
        try {
            $port.WriteTimeout = 2000
            $port.Open()
            $port.WriteLine($line)
            return
        } catch {
            Write-Log "the serial port can't be written: $_"
        } finally {
            $port.Close()
        }
    }
    $script:SerialTries = 1
}

function Write-Life([string]$Text) {
    if (-not $script:Changing) { return }
    Write-Serial $Text
    Write-Log $Text
}

# -- one change at a time

# Whether a script changes something: winlab runs those that only read again and again
function Test-Changing([string]$Script) {
    return @('logs', 'probe', 'sealed', 'status') -notcontains $Script
}

# Waits until no other script changes this worker, and keeps others from doing so: a script may still run whose winlab
# was killed. Windows releases the mutex when this process ends
function Enter-Change {
    $mutex = New-Object System.Threading.Mutex $false, 'Global\winlab-changes'
    try {
        while (-not $mutex.WaitOne(5000)) {
            Write-Progressing 'waiting for a script that an earlier winlab started here'
        }
    } catch [System.Threading.AbandonedMutexException] {
        return $mutex # its owner ended without releasing it, and now it is ours
    }
    return $mutex
}

# Runs a script's work. [Console]::Error, because Write-Error would wrap and colour the message
function Invoke-Step([scriptblock]$StepBody) {
    $name = (Split-Path -Leaf $MyInvocation.ScriptName) -replace '\.ps1$'
    try {
        if (Test-Changing $name) {
            $script:Changing = $name
            Write-Life 'begins'
            $mutex = Enter-Change
        }
        $result = @(& $StepBody)[-1]
        if ($script:Changing) { Save-Volume } # what is reported as done must survive a power cut
        Write-Life 'has ended'
        Write-Result $result
    } catch {
        $message = $_.Exception.Message
        # winlab's own errors are clear as they are; for all others the place helps
        if ("$($_.TargetObject)" -ne $message) {
            $place = $_.InvocationInfo
            $message += " ($([System.IO.Path]::GetFileName("$($place.ScriptName)")), line $($place.ScriptLineNumber))"
        }
        Write-Life "failed: $message"
        [Console]::Error.WriteLine($message)
        exit 1
    }
    exit 0
}

# -- native programs

# PowerShell does not treat a native program's failure as an error; this function does. A line on the standard error is
# treated like any other line: with 'Stop', PowerShell would end at the first one. $Heard gets each line, which may have
# a secret; only what $Heard returns is kept and shown in the error
function Invoke-Native([string]$Program, [string[]]$Arguments, [scriptblock]$Heard) {
    $ErrorActionPreference = 'Continue'
    $lines = @(& $Program $Arguments 2>&1 | ForEach-Object {
        if ($Heard) { & $Heard "$_" } else { "$_" }
    })
    if ($LASTEXITCODE -ne 0) {
        $told = ($lines | Select-Object -Last 8) -join "`n"
        throw "$(Split-Path -Leaf $Program) $($Arguments[0]) ended with exit code ${LASTEXITCODE}: $told"
    }
    return $lines
}

# -- files

function Get-Sha256([string]$Path) {
    if (-not (Test-Path -LiteralPath $Path -PathType Leaf)) { return '' }
    return (Get-FileHash -Algorithm SHA256 -LiteralPath $Path).Hash.ToLowerInvariant()
}

function Get-TextSha256([string]$Text) {
    $bytes = (New-Object System.Text.UTF8Encoding $false).GetBytes($Text)
    $digest = [System.BitConverter]::ToString([System.Security.Cryptography.SHA256]::Create().ComputeHash($bytes))
    return ($digest -replace '-').ToLowerInvariant()
}

function New-Folder([string[]]$Paths) {
    foreach ($path in $Paths) { New-Item -ItemType Directory -Force -Path $path | Out-Null }
}

function Set-FolderAcl([string]$Path, [string]$Sddl) {
    New-Folder $Path
    $acl = New-Object System.Security.AccessControl.DirectorySecurity
    $acl.SetSecurityDescriptorSddlForm($Sddl)
    Set-Acl -LiteralPath $Path -AclObject $acl
}

# A running program can't be overwritten, but it can be renamed
function Move-Over([string]$New, [string]$Target) {
    Remove-Item -Path "$Target.*.winlab-old" -Force -ErrorAction SilentlyContinue
    if (Test-Path -LiteralPath $Target) {
        $old = "$Target.$([DateTime]::UtcNow.Ticks).winlab-old"
        Move-Item -LiteralPath $Target -Destination $old -Force
        try {
            Move-Item -LiteralPath $New -Destination $Target -Force
        } catch {
            Move-Item -LiteralPath $old -Destination $Target -Force
            throw
        }
        Remove-Item -LiteralPath $old -Force -ErrorAction SilentlyContinue
    } else {
        Move-Item -LiteralPath $New -Destination $Target -Force
    }
}

function Install-File([string]$Source, [string]$Target, [string]$Sha256) {
    if ((Get-Sha256 $Target) -eq $Sha256) { return $false }
    $name = Split-Path -Leaf $Target
    if (-not (Test-Path -LiteralPath $Source)) { throw "'$name' is missing on winlab's CD." }
    New-Folder (Split-Path -Parent $Target)
    $new = "$Target.winlab-new"
    Remove-Item -LiteralPath $new -Force -ErrorAction SilentlyContinue
    [System.IO.File]::Copy($Source, $new)
    # a file copied from a CD is read-only
    [System.IO.File]::SetAttributes($new, [System.IO.FileAttributes]::Normal)
    if ((Get-Sha256 $new) -ne $Sha256) {
        Remove-Item -LiteralPath $new -Force
        throw "'$name' on winlab's CD is not what payload.json says: its SHA-256 differs."
    }
    Move-Over $new $Target
    return $true
}

# Whether another program must be installed here. A program that push.ps1 put there stays
function Test-Stale([string]$Target, [string]$Sha256) {
    if (Test-Path -LiteralPath "$Target.winlab-original") { return $false }
    return (Get-Sha256 $Target) -ne $Sha256
}

# After a power cut NTFS is consistent, but files that were just written may be empty or have zeros
function Save-Volume {
    try {
        Write-VolumeCache -DriveLetter C
    } catch {
        Write-Log "the disk's cache can't be flushed: $_"
    }
}

function Get-Text([string]$Path) {
    if (-not (Test-Path -LiteralPath $Path -PathType Leaf)) { return $null }
    return [System.IO.File]::ReadAllText($Path)
}

# Writes UTF-8 without a byte order mark, which Go's parsers would refuse; true if something changed
function Write-Text([string]$Path, [string]$Text) {
    if ((Get-Text $Path) -ceq $Text) { return $false }
    Set-Text $Path $Text
    return $true
}

function Set-Text([string]$Path, [string]$Text) {
    New-Folder (Split-Path -Parent $Path)
    [System.IO.File]::WriteAllText("$Path.winlab-new", $Text, (New-Object System.Text.UTF8Encoding $false))
    Move-Item -LiteralPath "$Path.winlab-new" -Destination $Path -Force
}

# No cmdlet writes the text, because module logging would put its parameters into the event log. Others can't read the
# file at any moment
function Write-Secret([string]$Path, [string]$Text) {
    $bytes = (New-Object System.Text.UTF8Encoding $false).GetBytes($Text)
    Write-SecretBytes $Path $bytes
}

function Write-SecretBytes([string]$Path, [byte[]]$Bytes) {
    if ([System.IO.File]::Exists($Path)) { [System.IO.File]::Delete($Path) }
    $acl = New-Object System.Security.AccessControl.FileSecurity
    $acl.SetSecurityDescriptorSddlForm($PrivateFile)
    $file = [System.IO.File]::Create($Path, 4096, [System.IO.FileOptions]::None, $acl)
    try {
        $file.Write($Bytes, 0, $Bytes.Length)
    } finally {
        $file.Dispose()
    }
}

function Get-Payload {
    $path = Join-Path $Payload 'payload.json'
    if (-not (Test-Path -LiteralPath $path)) { throw "$Payload is not winlab's payload CD: it has no payload.json." }
    return ConvertFrom-Json -InputObject ([System.IO.File]::ReadAllText($path))
}

# The names and digests of one part of payload.json, as a hash table
function Get-Listed([string]$Part) {
    $found = @{}
    $rows = (Get-Payload).$Part
    if ($rows) { foreach ($row in $rows.PSObject.Properties) { $found[$row.Name] = "$($row.Value.sha256)" } }
    return $found
}

# -- Windows

function Get-FeatureState([string]$Name) {
    $feature = Get-WindowsFeature -Name $Name
    if (-not $feature) { throw "This Windows knows no feature '$Name'." }
    switch ("$($feature.InstallState)") {
        'Installed' { return 'installed' }
        'InstallPending' { return 'pending' }
        default { return 'absent' }
    }
}

# Makes a key that exists until the next start of Windows
function Set-VolatileKey([string]$Key) {
    [Microsoft.Win32.Registry]::LocalMachine.CreateSubKey(
        $Key, [Microsoft.Win32.RegistryKeyPermissionCheck]::ReadWriteSubTree,
        [Microsoft.Win32.RegistryOptions]::Volatile).Dispose()
}

function Test-Key([string]$Key) {
    $found = [Microsoft.Win32.Registry]::LocalMachine.OpenSubKey($Key)
    if ($found) { $found.Dispose() }
    return $null -ne $found
}

function Test-RestartPending { return Test-Key $RestartKey }

function Request-Restart { Set-VolatileKey $RestartKey }

# -- what add-ons give this node

# What configure.ps1 has written: paths of files, keys and names of registry values
function Get-Given {
    $noted = Get-Text $GivenRecord
    if (-not $noted) { return @{ files = @(); registry = @() } }
    return ConvertFrom-Json -InputObject $noted
}

# A value as in settings.registry: its type, a space, its data. Empty if it does not exist
function Get-RegistryText([string]$Key, [string]$Name) {
    $path = $Key -replace '^HKLM\\', 'HKLM:\'
    if (-not (Test-Path -Path $path)) { return '' }
    $value = (Get-ItemProperty -Path $path).$Name
    if ($null -eq $value) { return '' }
    if ($value -is [string]) { return "string $value" }
    if ($value -is [array]) { return "multistring $($value -join "`n")" }
    return 'dword {0:x8}' -f ([long]$value -band 4294967295)
}

# -- services

. (Join-Path $PSScriptRoot 'services.ps1')

# Checks that every program that a service's command names exists, and makes the folder of its log
function Confirm-Command([string]$Command, [string]$Before) {
    $programs = @([regex]::Matches($Command, '[A-Za-z]:[\\/][^\s"]*?\.exe') | ForEach-Object { $_.Value })
    if ($programs.Count -eq 0) { throw "settings.command names no program: '$Command'." }
    foreach ($program in $programs) {
        if (-not (Test-Path -LiteralPath $program)) { throw "'$program' is missing: $Before comes first." }
    }
    foreach ($log in [regex]::Matches($Command, '--log-file=([^\s"]+)')) {
        New-Folder (Split-Path -Parent $log.Groups[1].Value)
    }
}

# The ID of the HNS network that kube-proxy's configuration names; nothing if it does not exist
function Get-ProxyNetwork {
    $named = "$(Get-Text 'C:\var\lib\kube-proxy\config.yaml')" -match '(?m)^[ \t]+networkName:[ \t]*(\S+)'
    if ($named) { return @(Get-HnsNetwork | Where-Object { $_.Name -eq $Matches[1] })[0].ID }
}

# kube-proxy's rules belong to the network that it found when it started. A network that was created again has a new ID
function Test-ProxyStale {
    $id = Get-ProxyNetwork
    return [bool]$id -and (Get-Text $ProxyNetwork) -cne $id
}

# The kubelet writes kubelet.conf before it has its certificate: a node has joined when it has both. A power cut during
# the join may have left them empty
function Test-Joined {
    return (Get-Text 'C:\etc\kubernetes\kubelet.conf') -match 'server:' -and
        (Get-Text 'C:\var\lib\kubelet\pki\kubelet-client-current.pem') -match 'BEGIN CERTIFICATE'
}
