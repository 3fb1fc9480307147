# Fakes of .NET types that the engine lacks, or has only in part. Text uses the engine's own fake of File.
[NoRunspaceAffinity()]
class FileDouble {
    static [string] Map([string]$Path) { return [Winlab.Doubles.Machine]::Map($Path) }
    static [bool] Exists([string]$Path) { return [Winlab.Doubles.File]::Exists($Path) }
    static [void] Delete([string]$Path) { [Winlab.Doubles.File]::Delete($Path) }
    static [void] Copy([string]$From, [string]$To) { [Winlab.Doubles.File]::Copy($From, $To) }
    static [void] Copy([string]$From, [string]$To, [bool]$Over) { [Winlab.Doubles.File]::Copy($From, $To, $Over) }
    static [string] ReadAllText([string]$Path) { return [Winlab.Doubles.File]::ReadAllText($Path) }
    static [void] WriteAllText([string]$Path, [string]$Text, [System.Text.Encoding]$Encoding) {
        [Winlab.Doubles.File]::WriteAllText($Path, $Text, $Encoding)
    }
    static [void] AppendAllText([string]$Path, [string]$Text) { [Winlab.Doubles.File]::AppendAllText($Path, $Text) }
    static [void] SetAttributes([string]$Path, [System.IO.FileAttributes]$To) { [Winlab.Doubles.File]::SetAttributes($Path, $To) }
    static [System.IO.FileStream] Create([string]$Path, [int]$Size, [System.IO.FileOptions]$How, $Access) {
        $made = [Winlab.Doubles.File]::Create($Path, $Size, $How, $Access)
        # the scripts' only access lists give others no rights; the stand-in's volume may not support such rights
        try { [System.IO.FileInfo]::new($made.Name).UnixFileMode = [System.IO.UnixFileMode]'UserRead, UserWrite' } catch { $null = $_ }
        return $made
    }
    static [System.IO.FileStream] Open([string]$Path, [System.IO.FileMode]$Mode, [System.IO.FileAccess]$Access) {
        return [System.IO.FileStream]::new([FileDouble]::Map($Path), $Mode, $Access)
    }
}

[NoRunspaceAffinity()]
class DirectoryDouble {
    static [object] CreateDirectory([string]$Path) { return [System.IO.DirectoryInfo]::new([FileDouble]::Map($Path)).Create() }
}

# What is free on a drive: the volume of the state, minus what winlab's fault takes
[NoRunspaceAffinity()]
class DriveDouble {
    [long]$TotalFreeSpace
    DriveDouble([string]$Letter) {
        $state = [System.IO.StreamReader]::new("$env:WINLAB_MACHINE/state.json")
        $this.TotalFreeSpace = [long][regex]::Match($state.ReadToEnd(), """letter"": *""$Letter"".*?""free"": *(\d+)").Groups[1].Value
        $state.Dispose()
        $fill = [System.IO.FileInfo]::new("$env:WINLAB_MACHINE/$($Letter.ToLowerInvariant())/winlab/faults.fill")
        if ($fill.Exists) { $this.TotalFreeSpace -= $fill.Length }
    }
}

# The first serial port. Another program has it as many times as serial-busy.txt says
[NoRunspaceAffinity()]
class SerialDouble {
    [string]$Name
    [bool]$Opened
    [int]$WriteTimeout = -1 # milliseconds; -1: forever
    SerialDouble([string]$Name, [int]$Speed) {
        if ($Speed -ne 115200) { throw 'The line is garbled.' }
        $this.Name = $Name
    }
    [void] Open() {
        $busy = [System.IO.FileInfo]::new("$env:WINLAB_MACHINE/serial-busy.txt")
        if ($busy.Exists) {
            $reader = $busy.OpenText()
            $left = [int]$reader.ReadToEnd()
            $reader.Dispose()
            if ($left -gt 0) {
                $writer = $busy.CreateText()
                $writer.Write($left - 1)
                $writer.Dispose()
                throw [UnauthorizedAccessException]::new("Access to the port '$($this.Name)' is denied.")
            }
        }
        # a program that does not close it locks others out
        $lock = [System.IO.FileInfo]::new("$env:WINLAB_MACHINE/serial-open.txt")
        if ($lock.Exists) { throw [UnauthorizedAccessException]::new("Access to the port '$($this.Name)' is denied.") }
        $lock.Create().Dispose()
        $this.Opened = $true
    }
    [void] WriteLine([string]$Text) {
        if ($this.WriteTimeout -ne 2000) { throw 'A port that nobody reads would be waited for.' }
        if (-not $this.Opened) { throw [InvalidOperationException]::new('The port is closed.') }
        $writer = [System.IO.FileInfo]::new("$env:WINLAB_MACHINE/$($this.Name.ToLowerInvariant()).txt").AppendText()
        $writer.Write("$Text`n")
        $writer.Dispose()
    }
    [void] Close() {
        if (-not $this.Opened) { return }
        [System.IO.FileInfo]::new("$env:WINLAB_MACHINE/serial-open.txt").Delete()
        $this.Opened = $false
    }
}

# HNS itself, which network.ps1 calls by vmcompute.dll: the block returns an answer, and then perhaps an HRESULT
[NoRunspaceAffinity()]
class HnsDouble {
    static [scriptblock]$Handler
    static [int] HNSCall([string]$Method, [string]$Path, [string]$Request, [ref]$Response) {
        $told = [HnsDouble]::Handler.Invoke($Method, $Path, $Request)
        $Response.Value = "$($told[0])"
        return [int]$told[1]
    }
}

# LSA's secrets: what bootstrap.ps1 compiles in Windows
[NoRunspaceAffinity()]
class LsaDouble {
    static [uint32] Remove([string]$Secret) {
        [Winlab.Doubles.Machine]::Note("secret $Secret removed")
        return 3221225524
    }
}

# Access lists of keys
[NoRunspaceAffinity()]
class KeySecurityDouble {
    [string]$Sddl
    [void] SetSecurityDescriptorSddlForm([string]$Text, [string]$Part) {
        if ($Part -ne 'Access') { throw 'Attempted to perform an unauthorized operation.' }
        $made = [Winlab.Doubles.DirectorySecurity]::new()
        $made.SetSecurityDescriptorSddlForm($Text)
        $this.Sddl = $made.Sddl
    }
}

# The registry's keys are the engine's own
[NoRunspaceAffinity()]
class RegistryDouble {
    static [object]$LocalMachine = [Winlab.Doubles.Registry]::LocalMachine
    static [void] SetValue([string]$Key, [string]$Name, [object]$Value, [Microsoft.Win32.RegistryValueKind]$Kind) {
        $short = $Key -replace '^HKEY_LOCAL_MACHINE', 'HKLM'
        [Winlab.Doubles.Store]::Make($short)
        $all = [Winlab.Doubles.Store]::Load()
        $all[$short][$Name] = $Value
        [Winlab.Doubles.Store]::Save($all)
    }
}
$global:TypeDoubles = @{
    'Winlab.Hns' = [HnsDouble]
    'Winlab.Lsa' = [LsaDouble]
    'Microsoft.Win32.Registry' = [RegistryDouble]
    'System.IO.File' = [FileDouble]
    'System.IO.Directory' = [DirectoryDouble]
    'System.IO.DriveInfo' = [DriveDouble]
    'System.IO.Ports.SerialPort' = [SerialDouble]
    'System.Security.AccessControl.RegistrySecurity' = [KeySecurityDouble]
}
