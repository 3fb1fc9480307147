# The PowerShell engine's prelude in the stand-in: Windows' cmdlets (windows.ps1) for the machine that it simulates.
# bridge.py answers on the socket WINLAB_BRIDGE: a request is a line of JSON, the answer is lines of JSON.
function global:Invoke-Bridge([string]$Call, [hashtable]$With = @{}, [scriptblock]$Each) {
    $socket = New-Object System.Net.Sockets.Socket (
        [System.Net.Sockets.AddressFamily]::Unix), ([System.Net.Sockets.SocketType]::Stream), (
        [System.Net.Sockets.ProtocolType]::Unspecified)
    try {
        $socket.Connect((New-Object System.Net.Sockets.UnixDomainSocketEndPoint $env:WINLAB_BRIDGE))
        $stream = New-Object System.Net.Sockets.NetworkStream $socket
        $request = [System.Text.Encoding]::UTF8.GetBytes("$(ConvertTo-Json -InputObject ($With + @{ call = $Call }) -Depth 9 -Compress)`n")
        $stream.Write($request, 0, $request.Length)
        $reader = [System.IO.StreamReader]::new($stream)
        $json = New-Object System.Web.Script.Serialization.JavaScriptSerializer
        while ($null -ne ($line = $reader.ReadLine())) {
            $answer = $json.DeserializeObject($line)
            if ($answer.ContainsKey('error')) { throw $answer['error'] }
            if ($answer.ContainsKey('value')) { return $answer['value'] }
            & $Each $answer
        }
        throw "The stand-in gave no answer to $Call."
    } finally {
        $socket.Dispose()
    }
}
function global:Get-Machine { return Invoke-Bridge 'state' }
function global:Set-Machine($State) { Invoke-Bridge 'change' @{ state = $State } | Out-Null }
# What windows.ps1 does itself in tests
$global:StandIn = @{
    start = { param($Name) Invoke-Bridge 'start task' @{ name = $Name } | Out-Null }
    runs = { param($Name) Invoke-Bridge 'task runs' @{ name = $Name } }
    create = { param($Command) Invoke-Bridge 'create process' @{ command = $Command } | Out-Null }
    certificate = { param($File, $Password) Invoke-Bridge 'import certificate' @{ file = "$File"; password = $Password } | Out-Null }
    password = { param($Text) Invoke-Bridge 'set password' @{ password = $Text } | Out-Null }
    listen = { Invoke-Bridge 'listen' | Out-Null }
    clock = { param($Date) Invoke-Bridge 'set clock' @{ seconds = [DateTimeOffset]::new($Date.ToUniversalTime()).ToUnixTimeMilliseconds() / 1000 } | Out-Null }
}

. "$PSScriptRoot/types.ps1"
[NoRunspaceAffinity()]
class StandInDrive {
    [long]$TotalFreeSpace
    [long]$AvailableFreeSpace # for the Free of a PSDrive, by its root
    StandInDrive([string]$Name) { $this.TotalFreeSpace = $this.AvailableFreeSpace = Invoke-Bridge 'free' @{ name = $Name } }
}
# One program at a time has the port
[NoRunspaceAffinity()]
class StandInPort {
    [string]$Name
    [bool]$Opened
    [int]$WriteTimeout = -1 # milliseconds; -1: forever
    StandInPort([string]$Name, [int]$Speed) { $this.Name = $Name }
    [void] Open() {
        if (-not (Invoke-Bridge 'open port' @{ name = $this.Name })) { throw [UnauthorizedAccessException]::new("Access to the port '$($this.Name)' is denied.") }
        $this.Opened = $true
    }
    [void] WriteLine([string]$Text) {
        if (-not $this.Opened) { throw [InvalidOperationException]::new('The port is closed.') }
        Invoke-Bridge 'write port' @{ text = "$Text`n" }
    }
    [void] Close() {
        if ($this.Opened) { Invoke-Bridge 'close port' }
        $this.Opened = $false
    }
}
$global:TypeDoubles['System.IO.DriveInfo'] = [StandInDrive]
$global:TypeDoubles['System.IO.Ports.SerialPort'] = [StandInPort]
. "$PSScriptRoot/windows.ps1"

# What a script reads about PowerShell is that of Windows PowerShell
$PSVersionTable['PSVersion'] = [version]"5.1.$(Get-Release).1"
$PSVersionTable['PSEdition'] = 'Desktop'

# Reading a large file takes an emulated processor many seconds: the stand-in caches digests
$global:GetFileHash = Get-Command -Name Get-FileHash -CommandType Cmdlet
function global:Get-FileHash {
    [CmdletBinding()] param([Parameter(Mandatory, Position = 0)][string]$LiteralPath, [ValidateSet('SHA1', 'SHA256', 'SHA384', 'SHA512', 'MD5')][string]$Algorithm = 'SHA256')
    if ($Algorithm -ne 'SHA256') { & $GetFileHash @PSBoundParameters; return }
    $digest = Invoke-Bridge 'digest' @{ path = (Resolve-Path -LiteralPath $LiteralPath).ProviderPath }
    [pscustomobject]@{ Algorithm = 'SHA256'; Hash = $digest.ToUpperInvariant(); Path = $LiteralPath }
}
# The guest agent, which the tools install, runs in the stand-in from its start
$global:StartProcess = Get-Command -Name Start-Process -CommandType Cmdlet
function global:Start-Process {
    [CmdletBinding()] param([Parameter(Mandatory, Position = 0)][string]$FilePath, [string[]]$ArgumentList, [switch]$Wait, [switch]$PassThru)
    if ($FilePath -notlike '*.exe') { & $StartProcess @PSBoundParameters; return }
    Add-Note "process $FilePath $ArgumentList"
    $hangs = $FilePath -like '*guest-tools.exe' -and (Get-Machine)['traps'] -contains 'tools-hang'
    while ($Wait -and $hangs) { Start-Sleep -Seconds 3600 }
    if (-not $PassThru) { return }
    New-Module -AsCustomObject -ArgumentList $hangs -ScriptBlock {
        param($TheHangs)
        $script:Hangs = $TheHangs
        $script:Id = 4711
        $script:Handle = 1
        $script:ExitCode = 0
        function WaitForExit($Limit) {
            if ($script:Hangs) { Start-Sleep -Milliseconds $Limit }
            return -not $script:Hangs
        }
        Export-ModuleMember -Variable Id, Handle, ExitCode -Function WaitForExit
    }
}
function global:Restart-Computer { [CmdletBinding()] param([switch]$Force) Invoke-Bridge 'power' @{ action = 'reboot' } | Out-Null }
function global:Stop-Computer { [CmdletBinding()] param([switch]$Force) Invoke-Bridge 'power' @{ action = 'poweroff' } | Out-Null }

# Programs: those on the drives run under Wine, those of Windows are the stand-in's. Quotes in arguments are lost, as in 5.1
$global:Programs = Invoke-Bridge 'programs'
$ExecutionContext.InvokeCommand.PreCommandLookupAction = {
    param($name, $look)
    if ($name -notlike '*.exe' -and $Programs -notcontains $name) { return }
    $look.CommandScriptBlock = {
        $words = @($args | ForEach-Object { $_ } | ForEach-Object { "$_" }) # an array is many arguments
        Invoke-Bridge 'run' @{ program = $name; words = $words; path = "$env:PATH" } {
            param($answer)
            if ($answer.ContainsKey('out')) { $answer['out'] }
            elseif ($answer.ContainsKey('err')) { Write-Error -Message $answer['err'] -ErrorAction Continue }
        } | ForEach-Object -Process { if ($_ -is [int] -or $_ -is [long]) { $global:LASTEXITCODE = [int]$_ } else { $_ } }
    }.GetNewClosure()
    $look.StopSearch = $true
}
